    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x48
    mov r12,QWORD PTR [rdi]
    mov r14,QWORD PTR [rdi+0x8]
    mov rbp,QWORD PTR [r12+0xa8]
    mov rax,QWORD PTR [r12+0xb0]
    mov rbx,QWORD PTR [r12+0xb8]
    mov QWORD PTR [rsp+0x40],rax
    cmp rbp,rax
    mov QWORD PTR [rsp+0x18],rdi
    je 6
    mov ecx,DWORD PTR [rdi+0x10]
    mov rax,QWORD PTR [r12+0x40]
    mov QWORD PTR [rsp+0x8],rax
    mov r15,QWORD PTR [r12+0xc0]
    sub r15,rbx
    and ecx,0x3f
    mov QWORD PTR [rsp+0x38],rcx
    mov rdi,QWORD PTR [rsi+0x18]
    mov rax,QWORD PTR [rsi]
    mov QWORD PTR [rsp+0x30],rax
    mov rax,QWORD PTR [rsi+0x8]
    mov QWORD PTR [rsp+0x28],rax
    mov rax,QWORD PTR [rsi+0x10]
    mov QWORD PTR [rsp+0x20],rax
    jmp 3
0:
    inc QWORD PTR [rdi+0xb0]
1:
    mov rax,QWORD PTR [rsp+0x20]
    inc QWORD PTR [rax]
2:
    add rbp,QWORD PTR [rsp+0x8]
    add r14,r13
    cmp rbp,QWORD PTR [rsp+0x40]
    je 6
3:
    mov eax,DWORD PTR [rbp+0x3c]
    bswap eax
    xor eax,ebx
    test eax,0xffff00fd
    jne 6
    mov eax,DWORD PTR [rbp+0x20]
    cmp eax,DWORD PTR [r12+0x30]
    jne 6
    mov eax,DWORD PTR [rbp+0x2c]
    bswap eax
    mov edx,eax
    and edx,0xffff0000
    je 6
    sub r15,rdx
    jb 6
    movzx eax,ax
    mov r13,rdx
    mov rcx,QWORD PTR [rsp+0x38]
    shr r13,cl
    cmp r13,rax
    jb 6
    add rbx,rdx
    cmp eax,0xc
    jb 2
    mov rdx,QWORD PTR [rsp+0x30]
    movzx ecx,WORD PTR [rdx+0x4]
    mov WORD PTR [r14+0x4],cx
    mov ecx,DWORD PTR [rdx]
    mov DWORD PTR [r14],ecx
    mov rdx,QWORD PTR [rsp+0x28]
    mov ecx,DWORD PTR [rdx]
    mov DWORD PTR [r14+0x6],ecx
    movzx ecx,WORD PTR [rdx+0x4]
    mov WORD PTR [r14+0xa],cx
    cmp eax,0xe
    jb 0
    mov rdx,r14
    sub rdx,QWORD PTR [rdi+0x48]
    movzx ecx,BYTE PTR [rdi+0x6c]
    shr rdx,cl
    cmp rdx,QWORD PTR [rdi+0x10]
    jae 4
    mov rcx,QWORD PTR [rdi+0x8]
    inc DWORD PTR [rcx+rdx*4]
4:
    mov rcx,QWORD PTR [rdi+0x80]
    cmp rcx,QWORD PTR [rdi+0x78]
    jae 5
    mov rdx,QWORD PTR [rdi+0x70]
    mov rsi,rcx
    shl rsi,0x4
    mov r8d,DWORD PTR [rdi+0x88]
    mov QWORD PTR [rdx+rsi*1],r14
    mov DWORD PTR [rdx+rsi*1+0x8],eax
    mov DWORD PTR [rdx+rsi*1+0xc],r8d
    inc rcx
    mov QWORD PTR [rdi+0x80],rcx
    jmp 1
5:
    mov rsi,r14
    mov QWORD PTR [rsp+0x10],rdi
    call QWORD PTR [_ZN4mlx58ethernet5store14Store$LT$M$GT$8not_sent]
    mov rdi,QWORD PTR [rsp+0x10]
    jmp 1
6:
    mov QWORD PTR [r12+0xa8],rbp
    mov QWORD PTR [r12+0xb8],rbx
    mov rax,QWORD PTR [rsp+0x18]
    mov QWORD PTR [rax+0x8],r14
    add rsp,0x48
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
    add rbp,QWORD PTR [rsp+0x8]
    mov QWORD PTR [r12+0xa8],rbp
    mov QWORD PTR [r12+0xb8],rbx
    mov rdi,rax
    call _Unwind_Resume@plt
