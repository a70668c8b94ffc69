    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0xa8
    mov ebx,esi
    mov r14,rdi
    mov r15,QWORD PTR [rdi+0x10]
    mov rbp,QWORD PTR [rdi+0x18]
    test edx,edx
    je 2
    cmp rbp,r15
    je 3
    mov r12,QWORD PTR [r14]
    mov r13,QWORD PTR [r14+0x8]
    dec r13
    jmp 1
0:
    cmp rbp,r15
    je 3
1:
    mov rax,r15
    and rax,r13
    shl rax,0x5
    mov ecx,DWORD PTR [r12+rax*1]
    mov DWORD PTR [r14+0x20],ecx
    cmp ecx,ebx
    jns 2
    add rax,r12
    inc r15
    mov QWORD PTR [r14+0x10],r15
    mov rdi,QWORD PTR [rax+0x8]
    test rdi,rdi
    je 0
    mov rcx,QWORD PTR [rax+0x10]
    mov rsi,QWORD PTR [rax+0x18]
    call QWORD PTR [rcx+0x10]
    jmp 0
2:
    cmp rbp,r15
    je 3
    mov rcx,QWORD PTR [r14]
    mov r13,QWORD PTR [r14+0x8]
    dec r13
    mov rax,r13
    and rax,r15
    shl rax,0x5
    mov QWORD PTR [rsp+0x20],rcx
    mov ecx,DWORD PTR [rcx+rax*1]
    mov DWORD PTR [r14+0x20],ecx
    cmp ecx,ebx
    js 4
3:
    add rsp,0xa8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
4:
    add rax,QWORD PTR [rsp+0x20]
    inc r15
    mov QWORD PTR [r14+0x10],r15
    mov r15,QWORD PTR [rax+0x8]
    mov rcx,QWORD PTR [rax+0x10]
    mov QWORD PTR [rsp+0x18],rcx
    mov rax,QWORD PTR [rax+0x18]
    mov QWORD PTR [rsp+0x10],rax
5:
    mov rcx,QWORD PTR [r14+0x10]
    test r15,r15
    je 7
    mov rdi,r15
    mov rdx,QWORD PTR [rsp+0x10]
    mov rax,QWORD PTR [rsp+0x18]
6:
    lea rsi,[rsp+0x30]
    xorps xmm0,xmm0
    movups XMMWORD PTR [rsi+0x60],xmm0
    movups XMMWORD PTR [rsi+0x50],xmm0
    movups XMMWORD PTR [rsi+0x40],xmm0
    movups XMMWORD PTR [rsi+0x30],xmm0
    movups XMMWORD PTR [rsi+0x20],xmm0
    movups XMMWORD PTR [rsi+0x10],xmm0
    movups XMMWORD PTR [rsi],xmm0
    mov QWORD PTR [rsi+0x70],0x0
    mov QWORD PTR [rsp+0x28],rdx
    cmp rbp,rcx
    jne 9
    mov r12b,0x1
    mov edx,0x1
    mov DWORD PTR [rsp+0xc],0x0
    jmp 18
7:
    mov rax,QWORD PTR [r14+0x18]
    mov rdx,QWORD PTR [r14]
    mov rsi,QWORD PTR [r14+0x8]
    dec rsi
8:
    cmp rax,rcx
    je 3
    mov r8,rcx
    and r8,rsi
    shl r8,0x5
    mov edi,DWORD PTR [rdx+r8*1]
    mov DWORD PTR [r14+0x20],edi
    cmp edi,ebx
    jns 3
    add r8,rdx
    inc rcx
    mov QWORD PTR [r14+0x10],rcx
    mov rdi,QWORD PTR [r8+0x8]
    test rdi,rdi
    je 8
    mov rax,QWORD PTR [r8+0x10]
    mov rdx,QWORD PTR [r8+0x18]
    jmp 6
9:
    mov rdx,rcx
    and rdx,r13
    shl rdx,0x5
    mov r8,QWORD PTR [rsp+0x20]
    mov esi,DWORD PTR [r8+rdx*1]
    cmp esi,ebx
    js 10
    mov r12b,0x1
    mov edx,0x1
    mov DWORD PTR [rsp+0xc],0x0
    jmp 17
10:
    add rdx,r8
    inc rcx
    mov r15,QWORD PTR [rdx+0x8]
    mov r8,QWORD PTR [rdx+0x10]
    mov QWORD PTR [rsp+0x18],r8
    mov rdx,QWORD PTR [rdx+0x18]
    mov QWORD PTR [rsp+0x10],rdx
    mov dl,0x1
    mov DWORD PTR [rsp+0xc],edx
    test r15,r15
    je 12
    mov r9d,0x1
11:
    mov rdx,r9
    xor r12d,r12d
    cmp r15,rdi
    jne 16
    cmp QWORD PTR [rsp+0x18],rax
    jne 16
    mov r8,QWORD PTR [rsp+0x10]
    mov QWORD PTR [rsp+rdx*8+0x28],r8
    mov r12b,0x1
    cmp rbp,rcx
    je 13
    mov r8,rcx
    and r8,r13
    shl r8,0x5
    mov r9,QWORD PTR [rsp+0x20]
    mov esi,DWORD PTR [r9+r8*1]
    cmp esi,ebx
    jns 14
    add r8,r9
    inc rcx
    mov r15,QWORD PTR [r8+0x8]
    mov r9,QWORD PTR [r8+0x10]
    mov QWORD PTR [rsp+0x18],r9
    mov r8,QWORD PTR [r8+0x18]
    mov QWORD PTR [rsp+0x10],r8
    xor r12d,r12d
    mov r8b,0x1
    test r15,r15
    je 15
    lea r9,[rdx+0x1]
    cmp rdx,0xe
    jbe 11
    jmp 15
12:
    mov edx,0x1
    xor r12d,r12d
    jmp 16
13:
    xor r8d,r8d
    mov rcx,rbp
    jmp 15
14:
    xor r8d,r8d
15:
    inc rdx
    mov DWORD PTR [rsp+0xc],r8d
16:
    mov QWORD PTR [r14+0x10],rcx
17:
    mov DWORD PTR [r14+0x20],esi
18:
    lea rsi,[rsp+0x28]
    call QWORD PTR [rax+0x8]
    cmp BYTE PTR [rsp+0xc],0x0
    jne 5
    jmp 3
    mov rbx,rax
    test r15,r15
    sete al
    or r12b,al
    jne 19
    mov rdi,r15
    mov rsi,QWORD PTR [rsp+0x10]
    mov rax,QWORD PTR [rsp+0x18]
    call QWORD PTR [rax]
19:
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
