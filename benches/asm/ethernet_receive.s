    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
    mov r13,r8
    mov r12,rcx
    mov rax,QWORD PTR [rsi+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    mov QWORD PTR [rsp+0x8],rdi
    mov rbp,rdx
    jne 17
    mov r14,rdi
    mov rcx,QWORD PTR [rsi+0x78]
    xor r15d,r15d
    mov rax,QWORD PTR [_ZN7mlx5_cq4kind5FACTS]
    jmp 2
0:
    xor r10d,r10d
1:
    inc r15
    add rdi,r8
    add rdi,r10
    add QWORD PTR [r9],rdi
    cmp r15,0x20
    je 21
2:
    mov rdx,rcx
    mov edi,DWORD PTR [rcx+0x3c]
    bswap edi
    xor edi,DWORD PTR [rsi+0x158]
    test dil,0xfd
    je 3
    test dil,0x1
    jne 22
    test dil,0xc
    jne 18
    lea ecx,[rdi-0x10]
    cmp cl,0x3f
    ja 18
    mov ecx,DWORD PTR [rdx+0x20]
    cmp QWORD PTR [rsi+0x40],rcx
    jne 4
    mov r8,QWORD PTR [rsi+0x48]
    jmp 5
3:
    mov r8d,DWORD PTR [rdx+0x20]
    cmp QWORD PTR [rsi+0x30],r8
    jne 10
    mov rcx,QWORD PTR [rsi+0x38]
    movzx r11d,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp r11w,r8w
    jne 11
    jmp 18
4:
    mov r8,QWORD PTR [rsi+0xa8]
    mov r11d,ecx
    bswap r11d
    mov r8,QWORD PTR [r8+0x10]
    mov r10d,r11d
    shr r10d,0x9
    and r10d,0x7ff8
    mov r10,QWORD PTR [r8+r10*1]
    test r10,r10
    je 18
    and r11d,0xfff
    shl r11d,0x4
    mov r8,QWORD PTR [r10+r11*1+0x8]
    cmp r8,0x2
    jb 18
    add r10,r11
    mov r11,QWORD PTR [r10]
    shr r11,0x20
    cmp DWORD PTR [rsi+0x15c],r11d
    jne 18
    mov r10,QWORD PTR [r10+0x8]
    test r8,r8
    je 18
    cmp r10,r8
    jne 18
    mov QWORD PTR [rsi+0x40],rcx
    mov QWORD PTR [rsi+0x48],r8
5:
    mov ecx,edi
    shr ecx,0x10
    mov r10,QWORD PTR [r8+0x190]
    test r10,r10
    je 6
    cmp r10d,0x1
    jne 18
    mov r10,QWORD PTR [r8+0x198]
    cmp QWORD PTR [r10+0x28],rcx
    jbe 18
    mov r8,QWORD PTR [r10+0x20]
    movzx r11d,BYTE PTR [r8+rcx*1]
    test r11b,r11b
    je 18
    xor r11d,r11d
    xchg BYTE PTR [r8+rcx*1],r11b
    test r11b,r11b
    je 18
    mov r8,QWORD PTR [r10+0x10]
    mov r8,QWORD PTR [r8+rcx*8]
    mov r11d,edi
    shr r11d,0x16
    mov ebx,0x1
    shl rbx,cl
    mov rcx,QWORD PTR [r10+0x30]
    lock or QWORD PTR [rcx+r11*8],rbx
    mov rcx,QWORD PTR [r10+0x40]
    mov BYTE PTR [rcx+r11*1],0x1
    mov rcx,QWORD PTR [r10+0x50]
    mov r10d,edi
    shr r10d,0x1c
    mov BYTE PTR [rcx+r10*1],0x1
    jmp 7
6:
    mov r10,QWORD PTR [r8+0x198]
    mov r11d,DWORD PTR [r10+0x100]
    movzx r8d,WORD PTR [r10+0x80]
    cmp r11d,ecx
    jne 18
    cmp r8w,cx
    je 18
    mov r8,QWORD PTR [r10+0x180]
    mov r11d,DWORD PTR [r10+0x188]
    dec r11d
    and r11d,ecx
    mov r8,QWORD PTR [r8+r11*8]
    inc ecx
    mov DWORD PTR [r10+0x100],ecx
7:
    shr dil,0x4
    or dil,0x80
    mov r10d,edi
    mov rcx,QWORD PTR [rsi+0x50]
    add rcx,rdx
    cmp rcx,QWORD PTR [rsi+0x88]
    je 14
8:
    movzx r11d,WORD PTR [rsi+0x164]
    movzx edi,r10b
    cmp BYTE PTR [rax+rdi*4+0x2],0x1
    jne 15
9:
    mov edi,DWORD PTR [rdx+0x2c]
    bswap edi
    and r10b,0xa0
    neg r10b
    jo 16
    jmp 0
10:
    mov rcx,QWORD PTR [rsi+0xa8]
    mov r10d,r8d
    bswap r10d
    mov rcx,QWORD PTR [rcx+0x10]
    mov r11d,r10d
    shr r11d,0x9
    and r11d,0x7ff8
    mov r11,QWORD PTR [rcx+r11*1]
    test r11,r11
    je 18
    and r10d,0xfff
    shl r10d,0x4
    mov rcx,QWORD PTR [r11+r10*1+0x8]
    cmp rcx,0x2
    jb 18
    add r11,r10
    mov r10,QWORD PTR [r11]
    cmp DWORD PTR [rsi+0x15c],r10d
    jne 18
    mov r10,QWORD PTR [r11+0x8]
    test rcx,rcx
    je 18
    cmp r10,rcx
    jne 18
    mov QWORD PTR [rsi+0x30],r8
    mov QWORD PTR [rsi+0x38],rcx
    movzx r11d,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp r11w,r8w
    je 18
11:
    shr edi,0x10
    movzx r8d,r11w
    mov rbx,QWORD PTR [rcx+0x100]
    and r8d,DWORD PTR [rcx+0x128]
    shl r8d,0x4
    mov r10,QWORD PTR [rbx+r8*1+0x8]
    mov r8,QWORD PTR [rbx+r8*1]
    mov r14,r10
    shr r14,0x28
    cmp di,r14w
    jne 12
    mov r14,QWORD PTR [rsp+0x8]
    jmp 13
12:
    mov ebx,edi
    sub ebx,r14d
    movzx r8d,WORD PTR [rcx]
    sub r8d,r11d
    cmp bx,r8w
    mov r14,QWORD PTR [rsp+0x8]
    jae 18
    add ebx,r11d
    mov r8,QWORD PTR [rcx+0x100]
    mov r10d,ebx
    and r10d,DWORD PTR [rcx+0x128]
    movzx r11d,r10w
    shl r11d,0x4
    mov r10,QWORD PTR [r8+r11*1+0x8]
    mov r8,QWORD PTR [r8+r11*1]
    mov r14,r10
    shr r14,0x28
    mov r11d,ebx
    cmp di,r14w
    mov r14,QWORD PTR [rsp+0x8]
    jne 18
13:
    inc r11d
    mov WORD PTR [rcx+0x80],r11w
    shr r10,0x20
    mov rcx,QWORD PTR [rsi+0x50]
    add rcx,rdx
    cmp rcx,QWORD PTR [rsi+0x88]
    jne 8
14:
    xor BYTE PTR [rsi+0x158],0x1
    mov rcx,QWORD PTR [rsi+0x80]
    movzx r11d,WORD PTR [rsi+0x164]
    movzx edi,r10b
    cmp BYTE PTR [rax+rdi*4+0x2],0x1
    je 9
15:
    xor edi,edi
    and r10b,0xa0
    neg r10b
    jno 0
16:
    and r11d,0x4800
    movzx r11d,r11w
    mov r10d,0x0
    cmp r11d,0x800
    je 1
    movzx edx,WORD PTR [rdx+0x1c]
    and edx,0xc06
    xor r10d,r10d
    cmp edx,0x806
    sete r10b
    jmp 1
17:
    xor r14d,r14d
    mov ecx,0x20
    mov rdi,rsi
    mov rsi,r9
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    mov r15,rdx
    test al,0x1
    je 36
    mov r14,QWORD PTR [rsp+0x8]
    jmp 24
18:
    mov QWORD PTR [rsi+0x78],rdx
    test r15d,r15d
    je 19
    mov eax,DWORD PTR [rsi+0x150]
    imul eax,r15d
    add eax,DWORD PTR [rsi+0x154]
    mov DWORD PTR [rsi+0x154],eax
    mov rcx,QWORD PTR [rsi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rsi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
19:
    mov ecx,0x20
    mov rdi,rsi
    mov rsi,r9
    mov rdx,r15
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    cmp rax,0x1
    jne 20
    mov r15,rdx
    jmp 24
20:
    xor r14d,r14d
    jmp 36
21:
    mov QWORD PTR [rsi+0x78],rcx
    mov eax,0x20
    mov r15d,0x20
    jmp 23
22:
    mov QWORD PTR [rsi+0x78],rdx
    test r15d,r15d
    je 44
    mov eax,r15d
23:
    imul eax,DWORD PTR [rsi+0x150]
    add eax,DWORD PTR [rsi+0x154]
    mov DWORD PTR [rsi+0x154],eax
    mov rcx,QWORD PTR [rsi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rsi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
24:
    mov rax,QWORD PTR [r14+0x140]
    test rax,rax
    je 30
    lea rdi,[r14+0x140]
    mov eax,DWORD PTR [rax]
    test al,0x2
    je 45
    movzx eax,WORD PTR [r14+0x178]
    mov rbx,QWORD PTR [r14+0x150]
    test r12,r12
    mov QWORD PTR [rsp+0x38],r15
    je 32
    mov QWORD PTR [rsp+0x50],rdi
    mov QWORD PTR [rsp+0x30],r13
    shl r12,0x4
    mov QWORD PTR [rsp+0x60],r12
    mov ecx,DWORD PTR [r14+0x16c]
    mov edx,DWORD PTR [r14+0x170]
    mov QWORD PTR [rsp+0x58],rdx
    mov r14,QWORD PTR [r14+0x148]
    mov DWORD PTR [rsp+0x2c],ecx
    cmp ecx,0x1
    mov DWORD PTR [rsp+0x28],eax
    mov rcx,rbx
    jbe 37
    mov QWORD PTR [rsp],rax
    mov rdx,rbp
25:
    mov r15,QWORD PTR [rdx]
    mov r12d,DWORD PTR [rdx+0x8]
    mov QWORD PTR [rsp+0x20],rdx
    mov r13d,DWORD PTR [rdx+0xc]
    cmp rbx,rcx
    je 28
    mov rbp,rbx
    test r12d,r12d
    mov rdx,QWORD PTR [rsp+0x20]
    jle 29
26:
    movups xmm0,XMMWORD PTR [data]
    movups XMMWORD PTR [r14+0x10],xmm0
    bswap r12d
    bswap r15
    bswap r13d
    mov DWORD PTR [r14],r12d
    mov DWORD PTR [r14+0x4],r13d
    mov QWORD PTR [r14+0x8],r15
27:
    add rdx,0x10
    mov rax,QWORD PTR [rsp+0x30]
    mov QWORD PTR [rbp+0x0],rax
    add r14,QWORD PTR [rsp+0x58]
    add rbp,0x8
    inc rax
    mov QWORD PTR [rsp+0x30],rax
    mov rbx,rbp
    add QWORD PTR [rsp+0x60],0xfffffffffffffff0
    jne 25
    jmp 33
28:
    mov rbp,rbx
    mov rdi,QWORD PTR [rsp+0x50]
    mov rsi,QWORD PTR [rsp]
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue12ReceiveQueue6places]
    mov r14,rax
    test rax,rax
    je 46
    mov rcx,QWORD PTR [rsp]
    movzx ebp,cx
    mov rax,QWORD PTR [rsp+0x8]
    and ebp,DWORD PTR [rax+0x174]
    shl rbp,0x3
    add rbp,QWORD PTR [rax+0x150]
    lea eax,[rcx+rdx*1]
    movzx ecx,dx
    lea rcx,[rcx*8+0x0]
    add rcx,rbp
    mov QWORD PTR [rsp],rax
    test r12d,r12d
    mov rdx,QWORD PTR [rsp+0x20]
    jg 26
29:
    mov r15,rcx
    mov rbx,rcx
    lea rdi,[rsp+0x44]
    mov rsi,r14
    mov ecx,DWORD PTR [rsp+0x2c]
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue13write_unusual]
    cmp BYTE PTR [rsp+0x44],0x1f
    jne 47
    mov rdx,QWORD PTR [rsp+0x20]
    mov rcx,r15
    jmp 27
30:
    test r12,r12
    je 43
    mov BYTE PTR [rsp+0x10],0x7
31:
    lea rsi,[rsp+0x10]
    xor edi,edi
    call QWORD PTR [_ZN8mlx5_wqe7request11batch_error9ListError3new]
    jmp 35
32:
    mov QWORD PTR [rsp],rax
    mov rcx,rbx
    mov rbp,rbx
33:
    sub ecx,ebp
    shr ecx,0x3
    mov rdx,QWORD PTR [rsp]
    sub edx,ecx
    mov rcx,QWORD PTR [rsp+0x8]
    cmp dx,WORD PTR [rcx+0x178]
    je 34
    mov WORD PTR [rcx+0x178],dx
    mov rax,QWORD PTR [rcx+0x160]
    mov WORD PTR [rax+0x80],dx
    mov rax,QWORD PTR [rcx+0x158]
    movzx ecx,dx
    bswap ecx
    mov DWORD PTR [rax],ecx
34:
    xor eax,eax
    mov r15,QWORD PTR [rsp+0x38]
35:
    xor r14d,r14d
    test rax,rax
    sete r14b
36:
    mov rax,r14
    mov rdx,r15
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
37:
    mov QWORD PTR [rsp],rax
    mov rdx,rbp
38:
    mov r15,QWORD PTR [rdx]
    mov r12d,DWORD PTR [rdx+0x8]
    mov QWORD PTR [rsp+0x20],rdx
    mov r13d,DWORD PTR [rdx+0xc]
    cmp rbx,rcx
    je 41
    mov rbp,rbx
    test r12d,r12d
    mov rdx,QWORD PTR [rsp+0x20]
    jle 42
39:
    bswap r12d
    bswap r15
    bswap r13d
    mov DWORD PTR [r14],r12d
    mov DWORD PTR [r14+0x4],r13d
    mov QWORD PTR [r14+0x8],r15
40:
    add rdx,0x10
    mov rax,QWORD PTR [rsp+0x30]
    mov QWORD PTR [rbp+0x0],rax
    add r14,QWORD PTR [rsp+0x58]
    add rbp,0x8
    inc rax
    mov QWORD PTR [rsp+0x30],rax
    mov rbx,rbp
    add QWORD PTR [rsp+0x60],0xfffffffffffffff0
    jne 38
    jmp 33
41:
    mov rbp,rbx
    mov rdi,QWORD PTR [rsp+0x50]
    mov rsi,QWORD PTR [rsp]
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue12ReceiveQueue6places]
    mov r14,rax
    test rax,rax
    je 46
    mov rcx,QWORD PTR [rsp]
    movzx ebp,cx
    mov rax,QWORD PTR [rsp+0x8]
    and ebp,DWORD PTR [rax+0x174]
    shl rbp,0x3
    add rbp,QWORD PTR [rax+0x150]
    lea eax,[rcx+rdx*1]
    movzx ecx,dx
    lea rcx,[rcx*8+0x0]
    add rcx,rbp
    mov QWORD PTR [rsp],rax
    test r12d,r12d
    mov rdx,QWORD PTR [rsp+0x20]
    jg 39
42:
    mov r15,rcx
    mov rbx,rcx
    lea rdi,[rsp+0x44]
    mov rsi,r14
    mov ecx,DWORD PTR [rsp+0x2c]
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue13write_unusual]
    cmp BYTE PTR [rsp+0x44],0x1f
    jne 47
    mov rdx,QWORD PTR [rsp+0x20]
    mov rcx,r15
    jmp 40
43:
    xor eax,eax
    jmp 35
44:
    test r15,r15
    jne 24
    dec DWORD PTR [rsi+0x168]
    je 49
    xor r15d,r15d
    jmp 24
45:
    call QWORD PTR [_ZN8mlx5_wqe4gate4Gate7refusal]
    mov ecx,eax
    sub cl,0x7
    movzx ecx,cl
    mov edx,0x3
    cmovae edx,ecx
    movzx ecx,dl
    lea rdx,[data]
    movsxd rcx,DWORD PTR [rdx+rcx*4]
    add rcx,rdx
    jmp rcx
    mov al,0x1e
    mov BYTE PTR [rsp+0x10],al
    jmp 31
46:
    mov rax,QWORD PTR [rsp]
    sub eax,DWORD PTR [rsp+0x28]
    movzx edi,ax
    mov DWORD PTR [rsp+0x18],0x1
    mov QWORD PTR [rsp+0x10],0x0
    lea rsi,[rsp+0x10]
    mov rbp,rbx
    call QWORD PTR [_ZN8mlx5_wqe7request11batch_error9ListError3new]
    xor r14d,r14d
    jmp 48
47:
    mov rbx,r15
    mov r14d,ebx
    sub r14d,ebp
    shr r14d,0x3
    mov ecx,DWORD PTR [rsp+0x28]
    add ecx,r14d
    mov rax,QWORD PTR [rsp]
    sub eax,ecx
    movzx edi,ax
    mov eax,DWORD PTR [rsp+0x4c]
    mov DWORD PTR [rsp+0x18],eax
    mov rax,QWORD PTR [rsp+0x44]
    mov QWORD PTR [rsp+0x10],rax
    lea rsi,[rsp+0x10]
    call QWORD PTR [_ZN8mlx5_wqe7request11batch_error9ListError3new]
48:
    mov rsi,QWORD PTR [rsp]
    sub esi,r14d
    mov rdx,QWORD PTR [rsp+0x8]
    cmp si,WORD PTR [rdx+0x178]
    mov r15,QWORD PTR [rsp+0x38]
    je 35
    mov WORD PTR [rdx+0x178],si
    mov rcx,QWORD PTR [rdx+0x160]
    mov WORD PTR [rcx+0x80],si
    mov rcx,QWORD PTR [rdx+0x158]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rcx],edx
    jmp 35
    mov al,0x1b
    mov BYTE PTR [rsp+0x10],al
    jmp 31
    mov BYTE PTR [rsp+0x11],al
    mov al,0x1c
    mov BYTE PTR [rsp+0x10],al
    jmp 31
    mov al,0x1d
    mov BYTE PTR [rsp+0x10],al
    jmp 31
49:
    mov rdi,rsi
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    xor r15d,r15d
    jmp 24
    jmp 50
    jmp 50
50:
    sub ebx,ebp
    shr ebx,0x3
    mov rdx,QWORD PTR [rsp]
    sub edx,ebx
    mov rcx,QWORD PTR [rsp+0x8]
    cmp dx,WORD PTR [rcx+0x178]
    je 51
    mov rsi,rdx
    mov rdx,QWORD PTR [rsp+0x8]
    mov WORD PTR [rdx+0x178],si
    mov rcx,QWORD PTR [rdx+0x160]
    mov WORD PTR [rcx+0x80],si
    mov rcx,QWORD PTR [rdx+0x158]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rcx],edx
51:
    mov rdi,rax
    call _Unwind_Resume@plt
